"""Cases from the scripts of this folder: the results of each alone, which a shared run has to match.

Run a case with a copy of this folder as the current folder and with stdin closed or empty:
`python <script> <args...>`. Some scripts write into the current folder, so two runs at once need two copies.

How iterations are counted here: an optimizer's step marks the iteration as done, and it ends at the next root
forward with gradients on, the next `DataLoader.__next__`, or the end of the script, by an exception too.
Several steps with none of these between them are one iteration, unless an optimizer steps a second time after
another backward pass: then each is one. In a script without an optimizer, a backward pass that reaches
parameters marks the iteration instead. A root forward under no_grad of a module with parameters is an eval
iteration where no training iteration is open, that is, begun by a forward with gradients or by a step and not
ended yet.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One way to run one script, and its results alone on the device.

    Attributes:
        name: unique, fit for a job's name.
        script: path below this folder.
        args: arguments of the script.
        exit_code: exit code in the form of `subprocess`: the negative signal if one ended the job.
        repeats: whether any two runs print the same bytes on stdout.
        iterations: training iterations; None if the rule leaves the number open.
        eval_iterations: likewise for eval iterations.
        needs_compiler: whether torch.compile calls a C++ compiler; such a case takes many seconds.
        note: special behaviour of the script, and the reason for a count of None.
    """

    name: str
    script: str
    args: tuple[str, ...] = ()
    exit_code: int = 0
    repeats: bool = True
    iterations: int | None = 0
    eval_iterations: int | None = 0
    needs_compiler: bool = False
    note: str = ""


CASES: tuple[Case, ...] = (
    # The view of a script on its process.
    Case("relative_paths", "relative_paths.py", iterations=12, note="writes relative_paths.out"),
    Case(
        "argv",
        "argv.py",
        ("--steps", "10", "--lr", "0.05", "--tag", "two words", "--", "-x", "", "ünï"),
        iterations=10,
    ),
    Case("main_guard", "main_guard.py", iterations=8, note="forks two loader workers"),
    Case(
        "main_guard_spawn",
        "main_guard.py",
        ("--context", "spawn"),
        iterations=8,
        note="two fresh interpreters import torch, which takes seconds",
    ),
    Case("local_import_a", "local_import/a/train.py", iterations=12),
    Case("local_import_b", "local_import/b/train.py", iterations=15),
    Case("exec_open", "exec_open.py", iterations=14),
    Case("pickle_main", "pickle_main.py", iterations=12),
    Case("chdir", "chdir.py", iterations=14),
    Case("set_threads", "set_threads.py", iterations=12),
    Case("env_threads", "env_threads.py", iterations=12, note="prints threads 1 only if torch loads after"),
    Case("hash_order", "hash_order.py", iterations=12),
    Case("stdin_read", "stdin_read.py", iterations=10, note="needs an empty stdin"),
    Case("unseeded", "unseeded.py", repeats=False, note="every line differs between two runs"),
    Case("signals", "signals.py", iterations=12),
    Case("threads", "threads.py", iterations=15),
    Case("subprocesses", "subprocesses.py", iterations=10),
    Case("spawned", "spawned.py", note="its processes are opaque: none of their iterations is counted"),
    Case("atexit_output", "atexit_output.py", iterations=12, note="prints two lines after main is over"),
    Case("at_the_end", "at_the_end.py", exit_code=1, iterations=12, note="finalisers print; writes at_the_end.out"),
    Case("at_the_end_hidden", "at_the_end.py", ("--hide",), exit_code=1, iterations=12, note="as above"),
    Case("no_newline", "no_newline.py", iterations=10),
    Case("big_log", "big_log.py", ("--megabytes", "100"), iterations=10, note="100 MB on stdout"),
    Case("warnings_out", "warnings_out.py", iterations=10, note="three lines that matter on stderr"),
    Case("no_torch", "no_torch.py"),
    # How a script ends.
    Case("argparse_error", "argparse_error.py", exit_code=2),
    Case("exit_three", "exit_three.py", exit_code=3, iterations=10),
    Case("exit_message", "exit_message.py", exit_code=1, iterations=11),
    Case("import_failure", "import_failure.py", exit_code=1),
    Case("raises", "raises.py", exit_code=1, iterations=5),
    Case(
        "segfault",
        "segfault.py",
        exit_code=-11,
        iterations=None,
        note="dies after its tenth step: 9 iterations have ended by then, 10 are done",
    ),
    Case(
        "killed_self",
        "killed_self.py",
        exit_code=-9,
        iterations=10,
        note="dies in its eleventh iteration: the forward that began it ended the tenth",
    ),
    # The end of an iteration.
    Case("lbfgs", "lbfgs.py", iterations=10),
    Case("several_optimizers", "several_optimizers.py", iterations=15),
    Case("accumulation", "accumulation.py", iterations=11, note="44 micro-batches"),
    Case("scaler_skip", "scaler_skip.py", iterations=11, note="14 steps of which 3 are skipped"),
    Case("optimizer_in_backward", "optimizer_in_backward.py", iterations=12, note="6 optimizers"),
    Case("functional_call", "functional_call.py", iterations=12),
    Case("two_models", "two_models.py", iterations=22),
    Case("gan", "gan.py", iterations=20, note="10 loops of two"),
    Case("zero_groups", "zero_groups.py", iterations=9, note="18 steps of one optimizer"),
    Case(
        "loss_method",
        "loss_method.py",
        iterations=12,
        eval_iterations=None,
        note="generate: see deepcopy_ema",
    ),
    Case("module_transforms", "module_transforms.py", iterations=14),
    Case("checkpointed", "checkpointed.py", iterations=12),
    Case(
        "checkpointed_sequential",
        "checkpointed.py",
        ("--sequential",),
        iterations=12,
        eval_iterations=None,
        note="two blocks of the first step run under no_grad with nothing open: 2 by the letter of the rule",
    ),
    Case("never_steps", "never_steps.py", note="15 forwards with gradients, of which none reaches a parameter"),
    Case("no_module", "no_module.py", note="20 steps by hand, which nothing can see"),
    Case("regression", "regression.py", iterations=24),
    Case(
        "language_model",
        "language_model.py",
        iterations=22,
        eval_iterations=11,
        note="evaluates 4 + 4 + 4 batches; the last of the first epoch belongs to the training iteration after it",
    ),
    Case("no_module_optimizer", "no_module_optimizer.py", iterations=20),
    Case("no_module_two_optimizers", "no_module_optimizer.py", ("--two",), iterations=20),
    # Forwards without gradients.
    Case("inference", "inference.py", eval_iterations=20),
    Case("inference_mode", "inference_mode.py", eval_iterations=16),
    Case("validation", "validation.py", iterations=12, eval_iterations=6),
    Case("target_network", "target_network.py", iterations=20),
    Case(
        "target_network_act",
        "target_network.py",
        ("--act",),
        iterations=20,
        eval_iterations=None,
        note="by the letter of the rule 1: only the first action is chosen with no iteration open",
    ),
    Case(
        "deepcopy_ema",
        "deepcopy_ema.py",
        iterations=20,
        eval_iterations=None,
        note="by the letter of the rule 0: each evaluation comes after a step and before its boundary",
    ),
    # torch.compile: the eager backend traces alike and needs no compiler.
    Case("compiled_eager", "compiled.py", ("--backend", "eager"), iterations=10),
    Case("compiled_step_eager", "compiled_step.py", ("--backend", "eager"), iterations=10),
    Case("compiled_step_apart_eager", "compiled_step.py", ("--backend", "eager", "--apart"), iterations=10),
    Case("compiled_method_eager", "compiled_method.py", ("--backend", "eager"), iterations=10),
    Case("regression_compiled_eager", "regression.py", ("--backend", "eager"), iterations=24),
    Case("regression_step_eager", "regression.py", ("--backend", "eager", "--step"), iterations=24),
    Case("regression_compiled", "regression.py", ("--backend", "inductor"), iterations=24, needs_compiler=True),
    Case("compiled_step", "compiled_step.py", iterations=10, needs_compiler=True),
    # Loader workers and checkpoints.
    Case("workers", "workers.py", iterations=16, note="forwards in the workers do not count"),
    Case(
        "checkpoint_resume",
        "checkpoint_resume.py",
        ("--steps", "12", "--step-ms", "0"),
        iterations=12,
        note="writes checkpoint_resume.pt",
    ),
    Case("slow_steps", "slow_steps.py", ("--steps", "12", "--ms", "4"), iterations=12),
)

QUICK = {
    "relative_paths",
    "local_import_a",
    "chdir",
    "set_threads",
    "threads",
    "atexit_output",
    "warnings_out",
    "no_torch",
    "raises",
    "segfault",
    "gan",
    "language_model",
    "validation",
    "inference",
    "compiled_eager",
}
"""Cases of the quick suite: one of each kind. The others are among the slow tests."""

# Scripts that do not end by themselves, or not soon: for tests of supervision.
HANGS = "hangs.py"  # five steps, then 1000 s inside the sixth iteration
EATS_MEMORY = "eats_memory.py"  # about 1 GiB a second; --limit-mib N ends it
CHECKPOINT_RESUME = "checkpoint_resume.py"  # --steps N --step-ms M --checkpoint FILE --resume
SLOW_STEPS = "slow_steps.py"  # --steps N --ms M --seed S --done FILE
