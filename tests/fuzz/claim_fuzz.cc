// Any bytes as a claim.toml: refused with an Error, or a claim whose numbers
// lie within what the rules allow, and that can be judged and told about.
#include <cmath>
#include <string>
#include <vector>

#include "fuzz/entry_point.h"
#include "isoloss/base/error.h"
#include "isoloss/document/json.h"
#include "isoloss/document/text.h"
#include "isoloss/estimators/claim_file.h"
#include "isoloss/estimators/claim_judge.h"
#include "isoloss/studies/documents.h"

namespace {

using namespace isoloss;              // NOLINT(google-build-using-namespace)
using namespace isoloss::estimators;  // NOLINT(google-build-using-namespace)

constexpr int64_t kSteps = 100;

/// Three runs that measured their loss after each step.
ArmCurves RunsOf(const std::string& arm, double loss) {
  ArmCurves runs{.arm = arm};
  for (int64_t seed = 1; seed <= 3; ++seed) {
    RunCurve run{.seed = seed};
    for (int64_t step = 0; step <= kSteps; ++step) {
      run.losses.emplace_back(step, loss + 0.01 * static_cast<double>(seed));
    }
    runs.runs.push_back(std::move(run));
  }
  return runs;
}

void CheckCells(const Claim& claim) {
  ISOLOSS_ASSERT(!claim.cells.empty() && claim.cells.size() <= kMaxCells);
  for (const ClaimCell& cell : claim.cells) {
    ISOLOSS_ASSERT(!cell.name.empty() && cell.name.front() != '.');
    ISOLOSS_ASSERT(cell.name.find('/') == std::string::npos);
    ISOLOSS_ASSERT(cell.experiment.find('/') == std::string::npos);
    if (!cell.student) continue;
    ISOLOSS_ASSERT(cell.student->Operations() <= kMostStudentOperations);
    ISOLOSS_ASSERT(cell.student->Bytes() <= kMostStudentBytes);
  }
}

void Judge(const Claim& claim) {
  std::vector<CellCurves> cells;
  for (const ClaimCell& cell : claim.cells) {
    CellCurves curves{.name = cell.name, .steps = kSteps, .seeds = 3};
    double loss = 2;
    for (const Contrast& contrast : claim.contrasts) {
      // A fit of laws takes too long to be fuzzed.
      if (contrast.measure == Measure::kParameterFactor) return;
      for (const std::string& arm :
           {contrast.arm, contrast.reference, contrast.other_arm,
            contrast.other_reference}) {
        curves.arms.push_back(RunsOf(arm, loss));
        loss += 0.1;
      }
    }
    cells.push_back(std::move(curves));
  }
  const ClaimResult result = JudgeClaim(claim, cells);
  ISOLOSS_ASSERT(result.contrasts.size() == claim.contrasts.size());
  const document::Document document = studies::ClaimDocument(result);
  ISOLOSS_ASSERT(!document::RenderText(document).empty());
  ISOLOSS_ASSERT(!document::RenderJson(document).empty());
  ISOLOSS_ASSERT(!document::RenderSvg(studies::ClaimPicture(result)).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const Claim claim = ParseClaim(text, "claim.toml");
    ISOLOSS_ASSERT(claim.contrasts.size() <= kMaxContrasts);
    ISOLOSS_ASSERT(claim.CountOf(ContrastRole::kClaim) > 0);
    ISOLOSS_ASSERT(claim.Error() > 0 && claim.Error() <= 0.05);
    CheckCells(claim);
    Judge(claim);
  } catch (const Error& error) {
    ISOLOSS_ASSERT(error.kind() == ErrorKind::kConfig);
  }
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  const std::string head =
      "title = \"t\"\nstatement = \"s\"\nlooks = 2\n[source]\npaper = \"p\"\n"
      "section = \"1\"\narxiv = \"2\"\npublished = \"x\"\nhere = \"y\"\n";
  const std::string within =
      "[[contrasts]]\nname = \"w\"\nsays = \"d\"\nmeasure = \"gap\"\n"
      "relation = \"within\"\nbound = 0.25\narm = \"a\"\nreference = \"b\"\n";
  const std::string control =
      "[[contrasts]]\nname = \"c\"\nsays = \"d\"\nmeasure = \"interaction\"\n"
      "relation = \"above\"\nbound = 0.25\narm = \"c\"\nreference = \"b\"\n"
      "other_arm = \"a\"\nother_cell = \"x\"\nat = 0.5\nrole = \"control\"\n";
  const std::string guard =
      "[[contrasts]]\nname = \"g\"\nsays = \"d\"\nmeasure = \"gap\"\n"
      "relation = \"above\"\nbound = 0.5\narm = \"c\"\nreference = \"b\"\n"
      "role = \"control\"\n";
  const std::string cells =
      "[[cells]]\nname = \"x\"\nset = [\"train.lr=0.01\"]\nstress = \"lr_10\"\n"
      "[[cells]]\nname = \"s\"\n[cells.student]\nwidth = 16\ndepth = 2\n"
      "hidden = 32\nbatch = 8\nsteps = 20\nlr = 0.01\nlabel_noise = 0\n"
      "format = \"e4m3.floor\"\nseeds = 4\n";
  return {
      head + within,
      head + cells + within + guard + control,
      head +
          "[[contrasts]]\nname = \"d\"\nsays = \"d\"\nmeasure = "
          "\"divergence\"\nrelation = \"below\"\nbound = 0\nequivalence = 37\n"
          "arm = \"a\"\nreference = \"b\"\nrole = \"claim\"\n",
      head +
          "[[contrasts]]\nname = \"g\"\nsays = \"d\"\nmeasure = "
          "\"gap_change\"\nrelation = \"above\"\nbound = 0\narm = \"a\"\n"
          "reference = \"b\"\nfrom = 0.5\nat = 1\n",
      head +
          "[[contrasts]]\nname = \"p\"\nsays = \"d\"\nmeasure = "
          "\"parameter_factor\"\nrelation = \"below\"\nbound = 1\narm = "
          "\"a\"\nreference = \"b\"\n",
  };
}
