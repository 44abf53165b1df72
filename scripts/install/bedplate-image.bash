# Completion of bedplate-image(1) for bash.

_bedplate_image() {
  local word=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "build run --help" -- "$word")
  elif [[ $word == -* ]]; then
    local options
    options=$("${COMP_WORDS[0]}" --help 2> /dev/null |
      sed -n "/^Options of ${COMP_WORDS[1]}:/,/^$/s/^  \(--[a-z-]*\) .*/\1/p")
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _bedplate_image bedplate-image
