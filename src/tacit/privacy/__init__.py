"""The boundary: the only code that may turn rows into anything that leaves.

Everything here is meant to be read beside PROOFS.md, and all but `one_draw` in one sitting.
"""
