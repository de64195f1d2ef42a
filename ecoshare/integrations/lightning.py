"""Callback for the `Trainer` of Lightning: metrics of each validation for the sweep, joules for the trainer's log."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback

from ecoshare.integrations.trainer_energy import TrainerEnergy, report_numbers


class EnergyCallback(Callback):
    """Reports each validation to the sweep of the job, and logs joules as the module logs its own metrics.

    The metrics are `device_energy_j` and `device_energy_j_per_step`: joules of the whole device. They are missing if
    the device has no energy counter that this process may read.
    """

    def __init__(self) -> None:
        """Prepare the callback; it measures while the trainer trains."""
        self._energy = TrainerEnergy()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to measure the device of this process."""
        if trainer.is_global_zero:
            self._energy.begin(str(trainer.strategy.root_device), trainer.global_step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log joules at the steps at which the trainer logs."""
        every = trainer.log_every_n_steps  # 0: the trainer logs no steps
        if every and trainer.global_step % every == 0:
            for name, value in self._energy.values(trainer.global_step).items():
                pl_module.log(name, value, rank_zero_only=True)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the metrics of a validation, but not those of the check before the training."""
        if trainer.is_global_zero and not trainer.sanity_checking:
            report_numbers(trainer.callback_metrics)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Release the device."""
        self._energy.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Release the device."""
        self._energy.end()
