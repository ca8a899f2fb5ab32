from . import forecast_result as forecast_result
from . import resume as resume
