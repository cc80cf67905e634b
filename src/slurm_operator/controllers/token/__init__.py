"""Token: a JSON web token in a Secret, renewed before it expires."""
