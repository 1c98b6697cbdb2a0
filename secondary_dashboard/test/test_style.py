# SPDX-License-Identifier: Apache-2.0

"""Contrast of the style sheet's colours to their background (WCAG 2.1)."""

import pathlib
import re
import unittest

import secondary_dashboard

SHEET = (pathlib.Path(secondary_dashboard.__file__).parent
         / 'static/secondary_dashboard/secondary.scss')
#: Colours of texts and of bars; grids and backgrounds carry no meaning.
MEANING = re.compile(r'(?<![-\w])(?:color|fill): (#[0-9a-f]{3,6});')
#: The darker of the backgrounds: white, and that of bars.
BACKGROUND = '#eee'
#: Level AA of texts.
LEAST = 4.5


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour like #eee or #1b6e3c."""
    digits = colour[1:]
    if len(digits) == 3:
        digits = ''.join(2 * one for one in digits)
    parts = [int(digits[n:n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.04045
                        else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


class ContrastTest(unittest.TestCase):

    def test_texts_and_bars_have_the_contrast_of_level_aa(self):
        found = MEANING.findall(SHEET.read_text())
        self.assertGreater(len(found), 8)
        for colour in found:
            with self.subTest(colour):
                self.assertGreaterEqual(contrast(colour, BACKGROUND), LEAST)

    def test_ratio_is_that_of_the_standard(self):
        self.assertAlmostEqual(21, contrast('#000', '#fff'))
        self.assertAlmostEqual(4.48, contrast('#777777', '#fff'), 2)
