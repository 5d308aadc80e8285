"""What is left of a day."""

import unittest

from spans import free

DAY = (9 * 60, 17 * 60)


class FreeTime(unittest.TestCase):
    """Each test is a day."""

    def test_a_day_without_meetings_is_free(self) -> None:
        """Nothing is taken away."""
        self.assertEqual(free(DAY, []), [DAY])

    def test_meetings_that_overlap_are_one(self) -> None:
        """The second begins before the first ends."""
        self.assertEqual(free(DAY, [(540, 630), (600, 690)]), [(690, 1020)])

    def test_a_call_in_the_middle_of_a_long_meeting_frees_nobody(self) -> None:
        """The second lies within the first."""
        self.assertEqual(free(DAY, [(540, 720), (570, 600)]), [(720, 1020)])


if __name__ == "__main__":
    unittest.main()
