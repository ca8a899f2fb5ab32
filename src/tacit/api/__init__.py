"""What users call: `plan`, `fit`, forecasts, audits and the scikit-learn estimators."""
