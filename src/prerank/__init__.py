"""Calibration of joint forecasts through pre-ranks."""

__version__ = "0.1.0"
