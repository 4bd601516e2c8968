"""A pretended CUDA device: what a trial does on a GPU, seen on a machine that has none.

Tensors say `cuda:0` to torch, to its autograd and autocast, and to Python; their values lie on the
CPU, which computes them. So whole trials run, and their numbers can be compared with a CPU's. The
device refuses what a GPU refuses, an operation of tensors on two devices, and writes down what a
GPU does without a word: where the host waits for it, what it draws at random, which copies only
claim not to wait, and what it is asked to launch.

It lives in a child process, beside stand-ins for the CUDA libraries (`driver/`): torch's own code
runs down to the driver, its checks of arguments included. `process.py` starts the child,
`device.py` is the device.

It cannot say how fast a GPU is, what cuDNN or NCCL compute, or how much memory a trial takes there.
A launch is an operation that torch dispatches: some are several kernels. Whether a copy without
waiting is over before it is read, it does not see either.
"""
