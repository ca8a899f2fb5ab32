"""What people call: the command line, and later `fit` and the scikit-learn classes."""
