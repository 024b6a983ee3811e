// isoloss golden: runs whose every bit is kept, checked and changed with a
// reason only.

#include "golden.h"

#include "usage.h"

namespace isoloss::cli {
namespace {

Action Declare(CLI::App& app) {
  static constexpr Command kSubcommands[] = {
      {"check", "Run the experiments of goldens again and compare",
       "isoloss golden check --exact", DeclareGoldenCheck},
      {"update", "Replace goldens by what this program computes",
       "isoloss golden update golden/curves/nano --reason "
       "'sums of the router in another order'",
       DeclareGoldenUpdate}};
  Describe(app,
           "Golden runs: check that this program still gives their every bit, "
           "or replace them, with a reason");
  return DeclareCommands(app, kSubcommands);
}

}  // namespace

extern constinit const Command kCommand_golden = {
    "golden", "Check or replace golden runs, whose every bit is kept",
    "isoloss golden check --exact", &Declare};

}  // namespace isoloss::cli
