"""The search for data that a model's or a method's functions hold: a net for mistakes, not a proof."""
