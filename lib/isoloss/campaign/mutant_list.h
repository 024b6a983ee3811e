// The catalogue of mutants, for those who choose among them.
#pragma once

#include <string>
#include <vector>

#include "isoloss/document/json.h"
#include "isoloss/mutants/mutant.h"

namespace isoloss::campaign {

/// Of `group`; all if it is empty.
/// Errors   ConfigError that lists the groups if there is none of that name.
std::vector<mutants::Mutant> MutantsOf(const std::string& group);

/// Name, class, what it is and who reported it, by groups.
std::string RenderMutants(const std::vector<mutants::Mutant>& chosen);
document::Json MutantJson(const mutants::Mutant& mutant);

}  // namespace isoloss::campaign
