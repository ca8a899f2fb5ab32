"""What exists to reproduce a paper, and is advised against elsewhere; "Papers" in the documentation says where it is used."""
