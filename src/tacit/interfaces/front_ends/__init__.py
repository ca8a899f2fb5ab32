"""Languages that models are written in, one per file; `registry` lists them."""
