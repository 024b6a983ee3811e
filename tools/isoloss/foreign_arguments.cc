#include "foreign_arguments.h"

#include <algorithm>

#include "isoloss/base/error.h"

namespace isoloss::cli {

void ForeignArguments::Declare(CLI::App& app) {
  AddOption(app, "--loss", read.loss,
            "Logs of other programs: name of the series that is the training "
            "loss (default: the one that is known as such)");
  AddOption(app, "--step", read.step,
            "Logs of other programs: name of the column that counts steps "
            "(default: the one that is known as such)");
  AddOption(app, "--until", until,
            "Logs of other programs: leave out what lies after this step")
      .IntegerIn(1, int64_t{1} << 53);
  AddOption(app, "--align", align,
            "Logs of other programs whose batches are meant to differ: compare "
            "equal steps, or equal numbers of tokens (default: equal steps of "
            "equal batches)")
      .OneOf({"step", "tokens"});
}

void ForeignArguments::RequireUse(const std::vector<compare::Run>& runs) const {
  const bool used = std::ranges::any_of(runs, [](const compare::Run& run) {
    return !run.log.provenance.Knows(runlog::Fact::kExperiment);
  });
  if (used || (read.loss.empty() && read.step.empty())) return;
  ThrowError(ErrorKind::kConfig,
             "--loss or --step is given, but all logs are of isoloss, which "
             "knows its columns. Leave it out.");
}

foreign::AlignOptions ForeignArguments::Alignment() const {
  return {.by = align == "tokens" ? foreign::AlignBy::kTokens
                                  : foreign::AlignBy::kStep,
          .until = until,
          .other_batches = !align.empty()};
}

}  // namespace isoloss::cli
