"""Front ends: ways to write a model, one per file. `registry` lists them."""
