"""Private Fisher scoring over several sites: a round adds up the noisy sums of all sites.

`settings` has the method, `site` what a site does with its rows, and `server` what follows from their sums.
"""
