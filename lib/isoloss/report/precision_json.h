// What a verdict on precision rests on, as JSON.
#pragma once

#include "isoloss/gate/verdict.h"
#include "isoloss/report/json_numbers.h"

namespace isoloss::report {

/// The value of key `precision` of verdict.json; null if the judgement has no
/// such measures.
Json PrecisionJson(const gate::Judgement& judgement);

}  // namespace isoloss::report
