// isoloss study claim: a published claim, put to the test.

#include "isoloss/report/claim.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/studies/claim.h"
#include "study_arguments.h"

namespace isoloss::cli {
namespace {

struct ClaimArguments {
  std::string folder;
  size_t seeds = 0;  ///< 0: the experiments' own
  StudyArguments study;
};

ExitCode ClaimCode(claims::Verdict verdict) {
  switch (verdict) {
    case claims::Verdict::kReproduced:
      return ExitCode::kPass;
    case claims::Verdict::kContradicted:
      return ExitCode::kFail;
    case claims::Verdict::kNotAtThisSize:
      break;
  }
  return ExitCode::kInconclusive;
}

ExitCode RunClaim(const ClaimArguments& arguments) {
  campaign::RequireOneProcess("claim", "its runs go side by side in one");
  studies::ClaimRequest request{.folder = arguments.folder,
                                .seeds = std::nullopt,
                                .out = arguments.study.out};
  if (arguments.seeds > 0) request.seeds = arguments.seeds;
  const studies::ClaimPlan plan = arguments.study.no_train
                                      ? studies::ReadClaimPlan(request)
                                      : studies::PlanClaim(request);
  if (const auto code =
          TrainAsAsked(plan.study, PrintableLines(studies::DescribePlan(plan)),
                       arguments.study)) {
    return *code;
  }
  const claims::ClaimResult result = studies::JudgeClaim(plan);
  studies::WriteClaim(plan, result);
  PrintResult(plan.study, report::RenderClaim(result),
              report::RenderClaimJson(result), arguments.study.json);
  return ClaimCode(result.verdict);
}

Action DeclareClaim(CLI::App& app) {
  auto arguments = std::make_shared<ClaimArguments>();
  AddOption(app, "folder", arguments->folder,
            "Folder of a claim.toml and its experiments")
      .Required()
      .TypeName("FOLDER");
  AddOption(app, "--seeds", arguments->seeds,
            "Train so many seeds in place of the experiments' own, from their "
            "first on; says what fewer can't show")
      .IntegerIn(2, 10'000);
  arguments->study.Declare(app, "claim",
                           "runs/claim-<name of the claim's folder>");
  return [arguments] { return RunClaim(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_claim = {
    "claim", "Put a published claim to the test",
    "isoloss study claim experiments/published/scale_rounding", &DeclareClaim};

}  // namespace isoloss::cli
