"""Keyed randomness: every random number is a function of names, never of who drew before.

A key is a 64-bit integer made from a seed and names (`key(seed, "tie-breaking", "PCA")`). A random number is
a hash of its key and its position, so a case gets the same number whatever the chunk, the order or the other
models computed beside it, and the global generators of torch and NumPy are never touched.

The hash is the finaliser of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
generators"), applied twice, in torch's wrapping int64 arithmetic: the same bits on a CPU and on a GPU.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from prerank._chunks import chunks
from prerank._kernels import NORMALS, kernel_for

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_CHUNK = 1 << 14  # rows hashed at a time: little memory, and too few to wait for torch's threads on a busy machine


def key(seed: int, *names: object) -> int:
    """A signed 64-bit key for a seed and any number of names.

    Parameters
    ----------
    seed : int
        The seed.
    *names : object
        What the random numbers are for, as text.

    Returns
    -------
    int
        A hash of seed and names.

    Examples
    --------
    >>> key(0, "draws") == key(0, "draws"), key(0, "draws") == key(1, "draws")
    (True, False)
    """
    text = "\x1f".join([str(int(seed)), *(str(name) for name in names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    # torch shifts int64 arithmetically; the mask makes it the logical shift that the hash is defined with
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """Scramble int64 values: a bijection whose output bits all depend on all input bits.

    Parameters
    ----------
    x : Tensor of int64
        Any shape.

    Returns
    -------
    Tensor of int64
        The same shape.
    """
    x = (x ^ _shift_right(x, 30)).mul_(_MIX_1)
    x.bitwise_xor_(_shift_right(x, 27)).mul_(_MIX_2)
    return x.bitwise_xor_(_shift_right(x, 31))


def bits(keys: int | Tensor, shape: Sequence[int], device: torch.device | None = None) -> Tensor:
    """Random int64 values: position j of key k is hash(k, j).

    Parameters
    ----------
    keys : int or Tensor of int64
        One key or several.
    shape : sequence of int
        Shape of the values of one key.
    device : torch.device, optional
        Device, where `keys` is a number.

    Returns
    -------
    Tensor of int64, shape (*keys.shape, *shape)
        Uniform over all 64-bit integers.
    """
    if not isinstance(keys, Tensor):
        keys = torch.tensor(keys, dtype=torch.int64, device=device)
    count = int(np.prod(shape, dtype=np.int64)) if len(shape) else 1
    counter = torch.arange(1, count + 1, dtype=torch.int64, device=keys.device) * _GOLDEN
    return mix(mix(keys[..., None] + counter) + keys[..., None]).reshape(*keys.shape, *shape)


def uniform(
    keys: int | Tensor,
    shape: Sequence[int],
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> Tensor:
    """Uniform numbers strictly inside (0, 1).

    Parameters
    ----------
    keys : int or Tensor of int64
        One key or several.
    shape : sequence of int
        Shape of the numbers of one key.
    dtype : torch.dtype, default torch.float64
        Floating type.
    device : torch.device, optional
        Device, where `keys` is a number.

    Returns
    -------
    Tensor, shape (*keys.shape, *shape)
        The numbers; those of a shorter shape are the first of a longer one.

    Examples
    --------
    >>> uniform(key(0, "example"), (2,)) == uniform(key(0, "example"), (5,))[:2]
    tensor([True, True])
    """
    # as many leading bits as the type's significand holds, minus one, and half a step: never 0, never 1
    precision = 23 if dtype == torch.float32 else 52
    leading = _shift_right(bits(keys, shape, device), 64 - precision)
    return (leading.to(dtype) + 0.5) * 2.0**-precision


def normal(
    keys: int | Tensor,
    shape: Sequence[int],
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> Tensor:
    """Standard normal numbers, by inversion of `uniform`.

    Parameters
    ----------
    keys : int or Tensor of int64
        One key or several.
    shape : sequence of int
        Shape of the numbers of one key.
    dtype : torch.dtype, default torch.float64
        Floating type.
    device : torch.device, optional
        Device, where `keys` is a number.

    Returns
    -------
    Tensor, shape (*keys.shape, *shape)
        The numbers.
    """
    return torch.special.ndtri(uniform(keys, shape, dtype, device))


def case_keys(seed: int, case_ids: Tensor, *names: object) -> Tensor:
    """One key per case: a function of the seed, the names and the case's identifier alone.

    Parameters
    ----------
    seed : int
        The seed.
    case_ids : Tensor of int, shape (n_cases,)
        Identifiers of the cases.
    *names : object
        What the random numbers are for.

    Returns
    -------
    Tensor of int64, shape (n_cases,)
        The keys.
    """
    return mix(mix(case_ids.to(torch.int64) * _GOLDEN + key(seed, *names)))


def keyed_order(n_cases: int, seed: int) -> np.ndarray:
    """An order of rows that depends on the seed alone: rows sorted by a keyed hash of their position.

    Parameters
    ----------
    n_cases : int
        Number of rows.
    seed : int
        Seed of the order.

    Returns
    -------
    ndarray of int, shape (n_cases,)
        Row numbers, each once.

    Examples
    --------
    >>> keyed_order(6, seed=0).tolist() == keyed_order(6, seed=0).tolist()
    True
    """
    keys = np.empty(n_cases, dtype=np.int64)
    for start in range(0, n_cases, _CHUNK):
        stop = min(start + _CHUNK, n_cases)
        keys[start:stop] = case_keys(seed, torch.arange(start, stop), "split").numpy()
    return np.argsort(keys, kind="stable")


def bits_of_steps(keys: Tensor, start: int, stop: int) -> Tensor:
    """Random bits for the steps of a loop, each a function of its key and step alone.

    One round of the hash on keys that are well mixed already, as `case_keys` are: SplitMix64 as it was published.

    Parameters
    ----------
    keys : Tensor of int64, shape (n_keys,)
        Keys that are well mixed.
    start : int
        The first step.
    stop : int
        The step after the last.

    Returns
    -------
    Tensor of int64, shape (n_keys, stop - start)
        31 random bits each.
    """
    counter = torch.arange(start + 1, stop + 1, dtype=torch.int64, device=keys.device) * _GOLDEN
    found = keys.new_empty(stop - start, len(keys))  # the keys of a step side by side, as most of them are used
    for steps in chunks(
        stop - start, 16 * len(keys), keys.device
    ):  # so few numbers that mixing them stays in the cache
        found[steps] = _shift_right(mix(counter[steps, None] + keys), 33)
    return found.T


def torch_generator(seed: int, *names: object, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator of its own for a seed and names, for draws that need not be keyed one by one.

    Parameters
    ----------
    seed : int
        The seed.
    *names : object
        What the random numbers are for.
    device : torch.device or str, default 'cpu'
        Device of the generator.

    Returns
    -------
    torch.Generator
        A seeded generator.
    """
    return torch.Generator(device).manual_seed(key(seed, *names) & ((1 << 63) - 1))


@contextmanager
def seeded(seed: int, *names: object) -> Iterator[None]:
    """Torch's global generators under a key of their own, restored afterwards: for code that takes no generator.

    Parameters
    ----------
    seed : int
        The seed.
    *names : object
        What the random numbers are for.

    Yields
    ------
    None
        Nothing: draws inside the block are seeded.

    Examples
    --------
    >>> with seeded(0, "example"):
    ...     first = torch.rand(3)
    >>> with seeded(0, "example"):
    ...     bool((torch.rand(3) == first).all())
    True
    """
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(key(seed, *names) & ((1 << 63) - 1))
        yield


def numpy_generator(seed: int, *names: object) -> "np.random.Generator":
    """A NumPy generator of its own for a seed and names, for simulations on the host.

    Parameters
    ----------
    seed : int
        The seed.
    *names : object
        What the random numbers are for.

    Returns
    -------
    numpy.random.Generator
        A seeded generator.
    """
    return np.random.default_rng(key(seed, *names) & ((1 << 64) - 1))


def normals_of_step(keys: Tensor, step: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Standard normal numbers for a step of a loop.

    On a CPU torch's own generator is several times faster than the hash, and reading the step costs nothing there. On
    a GPU the hash is used, because a captured graph can advance `step` but cannot seed a generator.

    Parameters
    ----------
    keys : Tensor of int64, shape (n_keys,)
        One key per stream.
    step : Tensor of int64
        The step, a scalar.
    shape : sequence of int
        Shape of the numbers of one key.
    dtype : torch.dtype
        Floating type.

    Returns
    -------
    Tensor, shape (n_keys, *shape)
        The numbers.
    """
    result = torch.empty(*keys.shape, *shape, dtype=dtype, device=keys.device)
    if fused := kernel_for(NORMALS, result):
        return fused(keys, step, result)
    mixed = mix(keys + step)
    if mixed.device.type != "cpu":
        return normal(mixed, shape, dtype)
    for row, value in zip(result, mixed.tolist(), strict=True):
        torch.randn(shape, generator=torch.Generator().manual_seed(value & ((1 << 63) - 1)), dtype=dtype, out=row)
    return result
