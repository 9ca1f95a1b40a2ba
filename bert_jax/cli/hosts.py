"""Connect this process to the other hosts of a run; must come before JAX touches a device."""

from typing import Any

from bert_jax.errors import InputError


def join_hosts(*by_hand: Any) -> None:
    """Connect to the other hosts.

    Args:
        by_hand: address of process 0, number of processes, number of this process; none = JAX detects them.

    Raises:
        InputError: there is no connection.
    """
    import jax

    try:
        jax.distributed.initialize(*by_hand)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"could not join the other hosts: {str(error).splitlines()[0]}") from error


def place_among_hosts() -> tuple[int, int]:
    """Return the number of this host, from 0, and of all hosts, which JAX detects.

    No connection stays: a host that ends early or is lost does not stop the others.

    Raises:
        InputError: there is no connection.
    """
    import jax

    join_hosts()
    place = jax.process_index(), jax.process_count()
    jax.distributed.shutdown()
    return place
