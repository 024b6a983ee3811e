#include "experiment_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "isoloss/device/devices.h"
#include "value_names.h"

namespace isoloss::cli {

Option DeclareExperiment(CLI::App& app, campaign::ExperimentSource& source) {
  const Option file =
      AddOption(app, "experiment", source.file, "Experiment file (TOML)")
          .TypeName(kTomlFile);
  AddOption(app, "--set", source.overrides,
            "section.key=value; overrides the file, checked like it; "
            "repeatable")
      .Repeatable()
      .TypeName(kSetting);
  AddOption(app, "--on", source.on,
            "Where the model computes: cpu, or gpu; in place of parallel.on. "
            "Both give the same bits")
      .OneOf(device::DeviceNames());
  return file;
}

void ExperimentArguments::Declare(CLI::App& app) {
  DeclareExperiment(app, *this).Required();
  AddOption(app, "--out", out,
            "Folder for the results (default: runs/<experiment name>)")
      .TypeName(kFolder);
  AddOption(app, "--seeds", seeds,
            "+N: train N seeds more than train.seeds and the folder have, "
            "numbered from behind the largest of them; or a list such as "
            "1,2,9 in place of train.seeds. Seeds that are finished are "
            "kept");
  AddFlag(app, "--dry-run", dry_run,
          "Check everything, print the resolved experiment, what each GEMM "
          "gets and what the runs take (time, memory, disk), and train "
          "nothing");
  AddFlag(app, "--resume", resume,
          "Go on with unfinished runs in the folder, from their last "
          "checkpoint; finished ones are kept in any case");
  AddFlag(app, "--restart", restart,
          "Discard the runs that are in the folder, finished or not, "
          "and train them anew")
      .Excludes("--resume");
}

std::string ExperimentArguments::HowToGoOn(
    const train::Experiment& experiment) const {
  if (!seeds.starts_with("+")) return "--resume";
  return fmt::format("--resume, and with --seeds {} in place of --seeds {},",
                     fmt::join(experiment.train.seeds, ","), seeds);
}

train::Leftovers ExperimentArguments::leftovers() const {
  if (resume) return train::Leftovers::kResume;
  return restart ? train::Leftovers::kDiscard : train::Leftovers::kRefuse;
}

}  // namespace isoloss::cli
