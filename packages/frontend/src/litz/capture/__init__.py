"""Capture: graphs as Dynamo and AOTAutograd pass them, and the callables that these get back."""
