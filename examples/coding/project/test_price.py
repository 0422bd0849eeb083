import unittest

from price import total


class Total(unittest.TestCase):
    def test_without_discount(self):
        self.assertEqual(total([10, 30]), 40)

    def test_discount_is_percent(self):
        self.assertEqual(total([100, 100], discount=10), 180)


if __name__ == "__main__":
    unittest.main()
