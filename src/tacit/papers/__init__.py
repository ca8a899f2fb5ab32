"""What exists to reproduce a paper, and is advised against elsewhere; "From the papers to Tacit" in the documentation says where it is used."""
