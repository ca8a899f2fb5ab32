"""The boundary: the only code that may turn rows into anything that leaves.

Everything here is meant to be read in one sitting, beside PROOFS.md.
"""
