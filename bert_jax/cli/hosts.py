"""Connect this process to the other hosts of a run, before JAX touches a device."""

from typing import Any

from bert_jax.errors import InputError


def join_hosts(*by_hand: Any) -> None:
    """Connect to the other hosts.

    Args:
        by_hand: address of process 0, number of processes, number of this process; without them, JAX detects them.

    Raises:
        InputError: the connection failed.
    """
    import jax

    try:
        jax.distributed.initialize(*by_hand)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"could not join the other hosts: {str(error).splitlines()[0]}") from error


def place_among_hosts() -> tuple[int, int]:
    """Return the index of this host, from 0, and the number of hosts, both detected by JAX.

    The connection is closed again, so that a host that ends early or is lost does not stop the others.

    Raises:
        InputError: the connection failed.
    """
    import jax

    join_hosts()
    place = jax.process_index(), jax.process_count()
    jax.distributed.shutdown()
    return place
