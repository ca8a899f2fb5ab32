"""What exists to reproduce a paper, and is advised against elsewhere; docs/evidence/papers.md says where it is used."""
