from . import demo as demo
from . import forecast_files as forecast_files
from . import model_files as model_files
from . import predictions as predictions
from . import requests as requests
