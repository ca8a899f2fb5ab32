"""What people look at. Everything here works on released or public values only."""
