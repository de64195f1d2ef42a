"""Callback for the `Trainer` of Hugging Face transformers: evaluations for the sweep, joules for the trainer's log."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from ecoshare.integrations.trainer_energy import TrainerEnergy, report_numbers


class EnergyCallback(TrainerCallback):
    """Reports each evaluation to the sweep of the job, and adds joules to what the trainer logs.

    The trainer hands a log to its callbacks in order. Those of W&B, MLflow and TensorBoard stand before callbacks that
    are passed to `Trainer`, so `attach` puts this one first::

        EnergyCallback().attach(trainer)

    The metrics are `device_energy_j` and `device_energy_j_per_step`: joules of the whole device. They are missing if
    the device has no energy counter that this process may read.
    """

    def __init__(self) -> None:
        """Prepare the callback; it measures while the trainer trains."""
        self._energy = TrainerEnergy()

    def attach(self, trainer: Any) -> None:
        """Make this the first callback of a trainer."""
        trainer.callback_handler.callbacks.insert(0, self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        """Begin to measure the device of this process."""
        if state.is_world_process_zero:
            self._energy.begin(str(args.device), state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_more: Any) -> None:
        """Add joules to a log, and to the trainer's history, which has a copy of it."""
        if logs is None or not state.is_world_process_zero:
            return
        values = self._energy.values(state.global_step)
        logs.update(values)
        if state.log_history:
            state.log_history[-1].update(values)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: dict[str, Any] | None = None, **_more: Any
    ) -> None:
        """Report the metrics of an evaluation."""
        if metrics is not None and state.is_world_process_zero:
            report_numbers(metrics)

    def on_train_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        """Release the device."""
        self._energy.end()
