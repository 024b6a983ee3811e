"""The order in which Lightning 2 calls its hooks, in a loop without its library."""

import torch


class Callback:
    """Whose hooks do nothing."""

    def __getattr__(self, name):
        if name.startswith("on_"):
            return lambda *_: None
        raise AttributeError(name)


class LightningModule(torch.nn.Module):
    automatic_optimization = True

    def optimizers(self):
        return self.trainer.steppers[0]

    def manual_backward(self, loss):
        self.trainer.backward(loss)

    def log(self, name, value):
        self.trainer.callback_metrics[name] = value.detach()


class Stepper:
    """What a module of manual optimization gets in place of its optimizer."""

    def __init__(self, trainer, optimizer):
        self.trainer, self.optimizer = trainer, optimizer

    def step(self):
        self.trainer.step(self.optimizer, lambda: None)

    def zero_grad(self):
        self.optimizer.zero_grad()


class Trainer:
    def __init__(self, callbacks, max_steps, accumulate_grad_batches=1, gradient_clip_val=None,
                 val_check_interval=None, **_):
        self.callbacks, self.estimated_stepping_batches = callbacks, max_steps
        self.accumulate_grad_batches, self.clip = accumulate_grad_batches, gradient_clip_val
        self.val_check_interval = val_check_interval
        self.global_step, self.sanity_checking, self.callback_metrics = 0, False, {}

    def call(self, hook, *arguments):
        for callback in self.callbacks:
            getattr(callback, hook)(self, self.module, *arguments)

    def fit(self, module, batches, held_out=()):
        self.module, module.trainer = module, self
        found = module.configure_optimizers()
        self.optimizers = [found["optimizer"]]
        self.steppers = [Stepper(self, optimizer) for optimizer in self.optimizers]
        try:
            self.sanity_checking = True
            self.validate(held_out)
            self.sanity_checking = False
            self.call("on_train_start")
            for place, batch in enumerate(batches):
                self.train(batch, place, found["lr_scheduler"]["scheduler"])
                if self.val_check_interval and (place + 1) % self.val_check_interval == 0:
                    self.validate(held_out)
                if self.global_step == self.estimated_stepping_batches:
                    break
            self.call("on_train_end")
        except Exception as error:
            self.call("on_exception", error)
            raise

    def train(self, batch, place, schedule):
        self.call("on_train_batch_start", batch, place)
        parts = self.accumulate_grad_batches
        outputs = {}

        def closure():
            loss = self.module.training_step(batch, place) / parts
            outputs["loss"] = loss.detach().clone()
            if place % parts == 0:
                self.optimizers[0].zero_grad()
            self.backward(loss)

        if not self.module.automatic_optimization:
            outputs["loss"] = self.module.training_step(batch, place).detach()
        elif (place + 1) % parts:
            closure()
        else:
            self.step(self.optimizers[0], closure)
        if self.module.automatic_optimization and (place + 1) % parts == 0:
            schedule.step()
        self.call("on_train_batch_end", outputs, batch, place)

    def backward(self, loss):
        self.call("on_before_backward", loss)
        loss.backward()
        self.call("on_after_backward")

    def step(self, optimizer, closure):
        def whole():
            closure()
            self.call("on_before_optimizer_step", optimizer)
            if self.module.automatic_optimization and self.clip:
                torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.clip)
        optimizer.step(closure=whole)
        self.global_step += 1

    def validate(self, batches):
        self.call("on_validation_start")
        with torch.no_grad():
            self.module.eval()
            for place, batch in enumerate(batches):
                self.module.validation_step(batch, place)
            self.module.train()
        self.call("on_validation_end")
