"""DTop-p: mixture-of-experts routing whose number of active experts varies by token and is held to a target by a controller."""
