"""The course as pages: what the notebooks hold as they are stored, to be read and played with in a browser.

A page needs no kernel, no server and no network; it asks nobody for anything, and tells nobody anything.
"""
