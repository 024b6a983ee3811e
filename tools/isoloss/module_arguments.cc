#include "module_arguments.h"

namespace isoloss::cli {

void DeclareModulePatterns(CLI::App& app, operations::CheckOptions& options) {
  AddOption(app, "--include", options.include,
            "Modules that are quantised: a pattern in place of the recipe's; "
            "repeatable. =NAME is one module")
      .Repeatable()
      .TypeName("PATTERN");
  AddOption(app, "--exclude", options.exclude,
            "Modules that are not: a pattern in place of the recipe's; "
            "repeatable")
      .Repeatable()
      .TypeName("PATTERN");
}

}  // namespace isoloss::cli
