// isoloss golden: runs whose every bit is kept, checked and changed with a
// reason only.

#include "golden.h"

#include "usage.h"

namespace isoloss::cli {

Action DeclareGolden(CLI::App& app) {
  app.description(
      "Golden runs: check that this program still gives their every bit, or "
      "replace them, with a reason");
  app.require_subcommand(1);
  CLI::App* check = AddCommand(
      app, "check", "Run the experiments of goldens again and compare",
      "isoloss golden check --exact");
  CLI::App* update =
      AddCommand(app, "update", "Replace goldens by what this program computes",
                 "isoloss golden update golden/curves/nano --reason "
                 "'sums of the router in another order'");
  const Action run_check = DeclareGoldenCheck(*check);
  const Action run_update = DeclareGoldenUpdate(*update);
  return [=] { return check->parsed() ? run_check() : run_update(); };
}

}  // namespace isoloss::cli
