"""The number of switches and cables of a data centre's fabric."""


def folded_clos_switches(hosts: float, ports: int, tiers: int) -> float:
    """Return the switches of `ports` ports that a folded Clos of full bisection over `hosts` takes.

    Each tier but the last has half of its ports down, so hosts / (ports / 2) switches; the last has all ports down and
    takes half as many: hosts (2 tiers - 1) / ports (Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data Center
    Network Architecture", SIGCOMM 2008, for three tiers).
    """
    return hosts * (2 * tiers - 1) / ports


def folded_clos_cables(hosts: float, tiers: int) -> float:
    """Return the cables between switches of that folded Clos: one for each host between any two tiers."""
    return hosts * (tiers - 1)
