"""Sentences of the privacy statement: who is trusted in a federated fit."""

ONLY_THE_SITE = (
    "nobody but the site itself is trusted: every message that leaves it is protected by itself, "
    "also from the server and from other sites"
)
SEVERAL_SITES = "a person whose data several sites hold pays the budget of each of them"
_SUM_ONLY = (
    "whoever adds up the sites' messages sees only their sum: single messages have too little noise to "
    "protect anyone, so they must be masked (secure aggregation)"
)
_HONEST = "at most {dishonest} of the sites reveal the noise that they added, or leave it out"
MAY_LEAVE = "up to {dropouts} of the sites may leave; the noise of the others is enough"
_SERVER = (
    "the server is trusted with the sites' changes, which it gets without noise, and with the "
    "noise; the connection to it is encrypted"
)
# By who adds the noise.
BY_NOISE = {
    "site": (ONLY_THE_SITE,),
    "split": (_SUM_ONLY, _HONEST),
    "server": (_SERVER,),
}
ZEROS = (
    "add-remove compares a site's change with zeros in its place; replace compares it with the change "
    "for other data, or for none"
)
NO_GUARANTEE = (
    "no guarantee: sites keep hidden noise in their own factors, and later rounds reveal it"
)
