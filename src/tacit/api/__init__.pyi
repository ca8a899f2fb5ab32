from . import forecast_page as forecast_page
from . import progress as progress
from . import resume as resume
