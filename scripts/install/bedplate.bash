# Completion of bedplate(1) for bash. Commands and options are those that the program itself tells.
# For a product of its own, such as logd: complete -o filenames -F _bedplate logd

_bedplate() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    local commands
    commands=$("$program" --help 2> /dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$commands --help" -- "$word")
  elif [[ $word == -* ]]; then
    local options
    options=$("$program" "$command" --help 2> /dev/null | sed -n 's/^  \(--*[a-z-]*\).*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$options --help" -- "$word")
  elif [[ $command =~ ^(stats|top|trace)$ ]]; then
    local names
    names=$(cd "/run/${program##*/}" 2> /dev/null && printf '%s\n' *.stats)
    mapfile -t COMPREPLY < <(compgen -W "${names//.stats/}" -- "$word")
  elif [ "$command" = perf ] && [ "$COMP_CWORD" -eq 2 ]; then
    mapfile -t COMPREPLY < <(compgen -W "serve send put get register" -- "$word")
  elif [ "$command" = ctl ] && [ "$COMP_CWORD" -eq 2 ]; then
    local methods
    methods=$("$program" ctl --list 2> /dev/null | sed -n 's/^\([a-z][^ ]*\): .*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$methods" -- "$word")
  elif [ "$command" = ctl ]; then
    local parameters
    [[ ${COMP_WORDS[2]} =~ ^[a-z_.]+$ ]] || return  # an option
    parameters=$("$program" ctl --list 2> /dev/null |
      sed -n "/^${COMP_WORDS[2]}: /,/^  [a-z]/s/^    \([a-z0-9_]*\)=.*/\1/p")
    compopt +o filenames -o nospace
    mapfile -t COMPREPLY < <(compgen -S = -W "$parameters" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _bedplate bedplate
