from . import resume as resume
