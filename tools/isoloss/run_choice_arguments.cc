#include "run_choice_arguments.h"

#include "value_names.h"

namespace isoloss::cli {

void RunChoiceArguments::Declare(CLI::App& app) {
  AddOption(app, "--only", only,
            "Make only these runs, by the names that --list-runs writes, with "
            "commas between them, and judge nothing: for machines that share "
            "the folder (`isoloss submit` uses it)")
      .SplitAtCommas()
      .TypeName("RUNS")
      .Hidden();
  AddOption(app, "--list-runs", list,
            "Write to this file (JSON) which runs the command consists of and "
            "what each is expected to take, and make none")
      .TypeName(kJsonFile)
      .Excludes("--only")
      .Hidden();
}

}  // namespace isoloss::cli
