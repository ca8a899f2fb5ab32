from . import forecast_result as forecast_result
from . import progress as progress
from . import resume as resume
