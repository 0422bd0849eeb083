"""Prices of an order."""


def total(prices, discount=0):
    """Returns the sum of the prices, less a discount in percent."""
    return sum(prices) - discount
