// What level L2 makes of a run's log: who was sent where, and how many bytes
// travelled, in every step that the oracle followed.
#pragma once

#include <optional>

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// Holds /moe/routing_digest and the bytes of /exchange of each probed run
/// against those that the oracle computed. None if no probe and log share any.
std::optional<Check> CheckFigures(const Evidence& evidence);

}  // namespace isoloss::gate
