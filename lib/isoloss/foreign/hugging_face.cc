// Reads trainer_state.json of Hugging Face's Trainer.
#include "isoloss/foreign/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/json.h"

namespace isoloss::foreign {
namespace {

using nlohmann::json;

/// Reads log_history, which src/transformers/trainer.py writes. A row has the
/// mean loss since the row before, rounded to 4 decimals by most versions.
ForeignRun ReadTrainerState(const json& rows) {
  ForeignRun run;
  run.format = "hugging_face";
  int64_t filtered = 0;
  for (const json& row : rows) {
    if (!row.is_object() || !row.contains("step")) continue;
    const auto step = WholeOf(row["step"]);
    if (!step || *step < 0) continue;
    const auto norm =
        row.contains("grad_norm") ? NumberOf(row["grad_norm"]) : std::nullopt;
    for (const auto& [name, value] : row.items()) {
      // The last row has means over the whole run.
      if (name == "step" || name == "total_flos" || name == "train_loss" ||
          name == "train_runtime") {
        continue;
      }
      const auto number = NumberOf(value);
      if (!number && name == "loss") {
        run.Of(name).AddWritten(*step, std::nullopt, value.dump());
      }
      if (!number) continue;
      const bool is_filtered = name == "loss" && IsFilteredLoss(*number, norm);
      filtered += is_filtered ? 1 : 0;
      AddShortest(run.Of(name), *step, is_filtered ? std::nan("") : *number);
    }
  }
  if (run.series.empty()) {
    ThrowError(ErrorKind::kFormat,
               "log_history has {} rows, but none with a step and a number. "
               "Give trainer_state.json of a later checkpoint.",
               rows.size());
  }
  Series& loss = run.Of("loss");
  if (SpacingOf(loss.step).stride > 1) {
    loss.averaging = Averaging::kIntervalMean;
  }
  AddFilterNotes(filtered, run);
  return run;
}

/// Adds what the state tells beside its rows.
void AddBatches(const json& root, ForeignRun& run) {
  constexpr const char* kTokens = "num_input_tokens_seen";
  const auto number = [&root](const char* name) {
    return root.contains(name) ? NumberOf(root[name]).value_or(0) : 0;
  };
  const auto last = static_cast<int64_t>(number("global_step"));
  if (number(kTokens) > 0 && last > 0 && run.Find(kTokens) == nullptr) {
    AddShortest(run.Of(kTokens), last, number(kTokens));
  }
  // This is the batch of one device. Runs may have equal batches on different
  // numbers of devices.
  if (const double batch = number("train_batch_size"); batch > 0) {
    run.settings["train_batch_size of trainer_state"] = batch;
  }
}

/// Returns the last step that is due, as told or by the epochs; 0 if not known.
int64_t PlanOfTrainer(const json& root) {
  const auto number = [&root](const char* name) {
    return root.contains(name) ? NumberOf(root[name]).value_or(0) : 0;
  };
  const auto told =
      root.contains("max_steps") ? WholeOf(root["max_steps"]) : std::nullopt;
  if (told && *told > 0) return *told;
  // An epoch ends before 1 if the trainer leaves out its last batches.
  constexpr double kWhole = 0.95;
  const double epochs = number("num_train_epochs");
  const double epoch = number("epoch");
  const double step = number("global_step");
  const bool ended = !(epoch > 0) || !(step > 0) || epoch >= kWhole * epochs;
  if (ended) return 0;
  return static_cast<int64_t>(
      std::min(std::floor(step * epochs / epoch), 0x1p53));
}

std::vector<ForeignRun> ReadState(Source& log, std::string_view /*step_name*/) {
  const json& root = log.json();
  if (!root.is_object() || !root.contains("log_history") ||
      !root["log_history"].is_array()) {
    return {};
  }
  ForeignRun run = ReadTrainerState(root["log_history"]);
  run.steps_planned = PlanOfTrainer(root);
  AddBatches(root, run);
  return {std::move(run)};
}

}  // namespace

bool IsFilteredLoss(double loss, std::optional<double> grad_norm) {
  return loss == 0 && grad_norm && std::isnan(*grad_norm);
}

void AddFilterNotes(int64_t filtered, ForeignRun& run) {
  if (filtered > 0) {
    run.notes.push_back(fmt::format(
        "{} rows have loss 0.0 and gradient norm NaN. The trainer's NaN filter "
        "reports this where every step of the window was NaN, so these count "
        "as NaN.",
        filtered));
  }
  run.notes.emplace_back(
      "The trainer replaces a step loss that is NaN by the window's mean "
      "(logging_nan_inf_filter). A finite loss is no proof of finite steps.");
}

extern const Format kFormat_hugging_face = {.name = "hugging_face",
                                            .read = &ReadState};

}  // namespace isoloss::foreign
